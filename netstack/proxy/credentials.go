package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
)

// maxUsersFile is how long a file of users may be, in bytes.
const maxUsersFile = 1 << 20

// Credentials are a user name and a password. They cannot be printed, logged or marshalled
// with the password.
type Credentials struct {
	User string
	pass *string // a pointer, so that no printing verb reaches it
}

// NewCredentials puts the two together. NewUsers says whether they can be used.
func NewCredentials(user, pass string) Credentials { return Credentials{User: user, pass: &pass} }

func (c Credentials) String() string               { return c.User + ":(redacted)" }
func (c Credentials) GoString() string             { return c.String() }
func (c Credentials) Format(f fmt.State, _ rune)   { io.WriteString(f, c.String()) }
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// check returns what is wrong with the credentials, without saying the password.
func (c Credentials) check() error {
	switch {
	case c.User == "":
		return errors.New("user name is empty")
	case c.pass == nil || *c.pass == "":
		return fmt.Errorf("password of user %q is empty", c.User)
	case len(c.User) > 255 || len(*c.pass) > 255:
		return errors.New("user name or password is longer than the 255 bytes that RFC 1929 allows")
	case strings.ContainsRune(c.User, ':'):
		return errors.New("user name holds a colon, which HTTP cannot carry")
	case strings.ContainsFunc(c.User, unicode.IsControl) || strings.ContainsFunc(*c.pass, unicode.IsControl):
		return errors.New("user name or password holds a control character")
	case strings.TrimSpace(c.User) != c.User || strings.TrimSpace(*c.pass) != *c.pass:
		return errors.New("user name or password begins or ends with a space: take it away")
	}
	return nil
}

// Users are those who may use a proxy. The zero value is nobody, which a proxy takes as
// everybody: see Options. It holds hashes of the passwords, does not change, and prints as the
// number of users. Compare with Equal, not with ==.
type Users struct{ hashes *[]userHash }

type userHash struct {
	name       string
	user, pass [sha256.Size]byte
}

// NewUsers makes a set of users. The error says which credentials cannot be used and why,
// without the password: empty, longer than 255 bytes, with a control character, a colon in
// the name, a space at an end, or a name given twice.
func NewUsers(all ...Credentials) (Users, error) {
	var hashes []userHash
	for _, c := range all {
		if err := c.check(); err != nil {
			return Users{}, err
		}
		if slices.ContainsFunc(hashes, func(h userHash) bool { return h.name == c.User }) {
			return Users{}, fmt.Errorf("user %q is given twice", c.User)
		}
		hashes = append(hashes, hashUser(c.User, *c.pass))
	}
	if hashes == nil {
		return Users{}, nil
	}
	return Users{&hashes}, nil
}

func hashUser(user, pass string) userHash {
	return userHash{user, sha256.Sum256([]byte(user)), sha256.Sum256([]byte(pass))}
}

// ParseUsers reads a file of users from r: a line USER:PASSWORD for each, where the password
// may hold colons. Blank lines, and lines that begin with #, are passed over. The error
// names the file and the line and holds no password. A file without users is an error, for
// it would let everybody in.
func ParseUsers(file string, r io.Reader) (Users, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxUsersFile+1))
	if err != nil {
		return Users{}, fmt.Errorf("read users: %w", err)
	}
	if len(b) > maxUsersFile {
		return Users{}, fmt.Errorf("%s: is longer than %d bytes: is it a file of users?", file, maxUsersFile)
	}
	all, err := parseUsers(file, b)
	if err != nil {
		return Users{}, err
	}
	return NewUsers(all...)
}

func parseUsers(file string, b []byte) (all []Credentials, err error) {
	lineOf := make(map[string]int)
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(b, []byte("\ufeff"))))
	lines.Buffer(nil, maxUsersFile+1)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		user, pass, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("%s:%d: has no colon: write USER:PASSWORD", file, n)
		}
		c := NewCredentials(user, pass)
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if first, ok := lineOf[user]; ok {
			return nil, fmt.Errorf("%s:%d: user %q is in line %d too: keep one of them", file, n, user, first)
		}
		lineOf[user] = n
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: has no users: write a line USER:PASSWORD for each", file)
	}
	return all, lines.Err()
}

// LoadUsers is ParseUsers for a file.
func LoadUsers(path string) (Users, error) {
	f, err := os.Open(path)
	if err != nil {
		return Users{}, fmt.Errorf("open file of users: %w", err)
	}
	defer f.Close()
	return ParseUsers(path, f)
}

// IsZero reports whether there are no users.
func (u Users) IsZero() bool { return u.hashes == nil }

func (u Users) list() []userHash {
	if u.hashes == nil {
		return nil
	}
	return *u.hashes
}

// Names returns the user names in the order they were given.
func (u Users) Names() (names []string) {
	for _, h := range u.list() {
		names = append(names, h.name)
	}
	return names
}

// Check reports whether there is such a user with that password. Its time tells neither
// whether the user exists nor how much of the password was right.
func (u Users) Check(user, pass string) bool {
	got, found := hashUser(user, pass), 0
	for _, h := range u.list() {
		found |= subtle.ConstantTimeCompare(got.user[:], h.user[:]) & subtle.ConstantTimeCompare(got.pass[:], h.pass[:])
	}
	return found == 1
}

// Equal reports whether both are the same users with the same passwords, in any order.
func (u Users) Equal(other Users) bool {
	a, b := u.list(), other.list()
	return len(a) == len(b) && !slices.ContainsFunc(a, func(h userHash) bool { return !slices.Contains(b, h) })
}

func (u Users) String() string {
	if n := len(u.list()); n != 1 {
		return fmt.Sprintf("%d users", n)
	}
	return "1 user"
}
func (u Users) GoString() string             { return u.String() }
func (u Users) Format(f fmt.State, _ rune)   { io.WriteString(f, u.String()) }
func (u Users) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
