package device

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/curve25519"
)

// KeyLen is the length of every WireGuard key in bytes.
const KeyLen = 32

// redacted is all that a secret ever says of itself.
const redacted = "(redacted)"

// PublicKey is a Curve25519 public key (RFC 7748): the identity of a peer. It is
// comparable and may be a map key. The zero value means "none".
type PublicKey [KeyLen]byte

// ParsePublicKey reads the base64 form that wg(8) prints.
func ParsePublicKey(s string) (PublicKey, error) {
	k, err := parseKey(s)
	return PublicKey(k), err
}

// IsZero reports whether no key is set.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String returns the base64 form, as wg(8) prints it.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Short returns the first eight characters of the base64 form and an ellipsis, for log
// lines and tables. It is not unique.
func (k PublicKey) Short() string { return k.String()[:8] + "…" }

// Hex returns the form that the UAPI text uses.
func (k PublicKey) Hex() string { return hex.EncodeToString(k[:]) }

// Compare orders keys by their bytes.
func (k PublicKey) Compare(other PublicKey) int {
	for i := range k {
		if k[i] != other[i] {
			return int(k[i]) - int(other[i])
		}
	}
	return 0
}

// MarshalText returns the base64 form.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the base64 form.
func (k *PublicKey) UnmarshalText(b []byte) error {
	parsed, err := ParsePublicKey(string(b))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// secret holds key bytes behind two pointers, so that no printing verb reaches them even
// when the key sits in an unexported field, where fmt cannot call methods. One pointer is
// not enough: for a verb that does not fit, as %s of a number, fmt follows it.
type secret struct{ bytes **[KeyLen]byte }

func newSecret(b [KeyLen]byte) secret {
	p := &b
	return secret{&p}
}

func (s secret) isZero() bool { return s.value() == [KeyLen]byte{} }

func (s secret) equal(other secret) bool {
	a, b := s.value(), other.value()
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func (s secret) value() [KeyLen]byte {
	if s.bytes == nil {
		return [KeyLen]byte{}
	}
	return **s.bytes
}

func (s secret) format(f fmt.State) { io.WriteString(f, s.text()) }

func (s secret) text() string {
	if s.isZero() {
		return "(none)"
	}
	return redacted
}

// PrivateKey is a Curve25519 private key (RFC 7748). It cannot be printed, logged or
// marshalled: each of these says "(redacted)". Compare with Equal, not with ==. The zero
// value means "none".
type PrivateKey struct {
	secret secret
	public *PublicKey // computed once: a multiplication is dearer than a whole Apply
}

func newPrivateKey(b [KeyLen]byte) PrivateKey {
	if b == [KeyLen]byte{} {
		return PrivateKey{}
	}
	pub, err := curve25519.X25519(b[:], curve25519.Basepoint)
	if err != nil {
		panic("curve25519: base point multiplication: " + err.Error())
	}
	return PrivateKey{secret: newSecret(b), public: (*PublicKey)(pub)}
}

// NewPrivateKey returns a fresh clamped key from the system's random source.
func NewPrivateKey() (PrivateKey, error) {
	var b [KeyLen]byte
	if _, err := rand.Read(b[:]); err != nil {
		return PrivateKey{}, fmt.Errorf("read random bytes: %w", err)
	}
	b[0] &= 248
	b[31] = b[31]&127 | 64
	return newPrivateKey(b), nil
}

// ParsePrivateKey reads the base64 form that wg(8) uses. Its error never holds the input.
func ParsePrivateKey(s string) (PrivateKey, error) {
	b, err := parseKey(s)
	if err != nil {
		return PrivateKey{}, err
	}
	return newPrivateKey(b), nil
}

// Public returns the public half, or the zero PublicKey when no key is set.
func (k PrivateKey) Public() PublicKey {
	if k.public == nil {
		return PublicKey{}
	}
	return *k.public
}

// IsZero reports whether no key is set.
func (k PrivateKey) IsZero() bool { return k.secret.isZero() }

// Equal compares in constant time.
func (k PrivateKey) Equal(other PrivateKey) bool { return k.secret.equal(other.secret) }

// Reveal returns the base64 form. Call it only to write a file that its owner alone can read.
func (k PrivateKey) Reveal() string { return reveal(k.secret) }

func (k PrivateKey) String() string               { return k.secret.text() }
func (k PrivateKey) GoString() string             { return k.secret.text() }
func (k PrivateKey) Format(f fmt.State, _ rune)   { k.secret.format(f) }
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(k.secret.text()), nil }

// PresharedKey is the optional symmetric key of a pair of peers. It prints as little as
// PrivateKey does. Compare with Equal, not with ==. The zero value means "none".
type PresharedKey struct{ secret secret }

// NewPresharedKey returns a fresh key from the system's random source.
func NewPresharedKey() (PresharedKey, error) {
	var b [KeyLen]byte
	if _, err := rand.Read(b[:]); err != nil {
		return PresharedKey{}, fmt.Errorf("read random bytes: %w", err)
	}
	return PresharedKey{newSecret(b)}, nil
}

// ParsePresharedKey reads the base64 form that wg(8) uses. Its error never holds the input.
func ParsePresharedKey(s string) (PresharedKey, error) {
	b, err := parseKey(s)
	if err != nil {
		return PresharedKey{}, err
	}
	return PresharedKey{newSecret(b)}, nil
}

// IsZero reports whether no key is set.
func (k PresharedKey) IsZero() bool { return k.secret.isZero() }

// Equal compares in constant time.
func (k PresharedKey) Equal(other PresharedKey) bool { return k.secret.equal(other.secret) }

// Reveal returns the base64 form. Call it only to write a file that its owner alone can read.
func (k PresharedKey) Reveal() string { return reveal(k.secret) }

func (k PresharedKey) String() string               { return k.secret.text() }
func (k PresharedKey) GoString() string             { return k.secret.text() }
func (k PresharedKey) Format(f fmt.State, _ rune)   { k.secret.format(f) }
func (k PresharedKey) MarshalText() ([]byte, error) { return []byte(k.secret.text()), nil }

var errKey = errors.New("not a WireGuard key: 32 bytes in base64 are 44 characters that end in =")

// parseKey keeps the input out of its error: the caller cannot know whether it is a secret.
// The length is looked at first because the decoder skips line ends, which wg(8) refuses.
func parseKey(s string) (k [KeyLen]byte, err error) {
	if len(s) != base64.StdEncoding.EncodedLen(KeyLen) {
		return k, errKey
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != KeyLen {
		return k, errKey
	}
	return [KeyLen]byte(b), nil
}

func reveal(s secret) string {
	b := s.value()
	return base64.StdEncoding.EncodeToString(b[:])
}
