package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds what a Client reads of one answer.
const maxAnswer = 64 << 20

// Plan is what a reload would do.
type Plan struct {
	Changes []Change `json:"changes"`
	Refused []string `json:"refused,omitempty"` // why nothing would be done
}

// MarshalJSON writes no change as an empty list.
func (p Plan) MarshalJSON() ([]byte, error) {
	type plain Plan
	if p.Changes == nil {
		p.Changes = []Change{}
	}
	return json.Marshal(plain(p))
}

// String returns one line for each change or refusal.
func (p Plan) String() string {
	var b strings.Builder
	for _, reason := range p.Refused {
		b.WriteString("refused: " + reason + "\n")
	}
	for _, c := range p.Changes {
		b.WriteString(c.String() + "\n")
	}
	return cmp.Or(b.String(), "nothing would change\n")
}

// Client asks the admin listener of a running gateway.
type Client struct {
	http http.Client
	base string
	name string
}

// NewClient returns a client for an admin listener as --admin takes it: "127.0.0.1:9080"
// or "unix:/path". It connects to nothing yet.
func NewClient(admin string) (*Client, error) {
	l, err := parseListen("tcp", "", admin)
	if err != nil {
		return nil, origin{field: "--admin"}.refuse(admin, err.Error())
	}
	c := &Client{base: "http://" + l.Addr.String(), name: admin}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	if l.Network == "unix" {
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", l.Path)
		}
	}
	c.http.Transport = transport
	return c, nil
}

// Status asks what the gateway is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.get(ctx, "/status", &s)
}

// Plan asks what would change if the gateway read its files again; or, with files, if it
// read these in the place of its tunnels of the same names. Paths must be absolute, and as
// the gateway sees them.
func (c *Client) Plan(ctx context.Context, files ...string) (Plan, error) {
	var p Plan
	path := "/plan"
	if len(files) > 0 {
		path += "?" + url.Values{"file": files}.Encode()
	}
	err := c.get(ctx, path, &p)
	if len(p.Changes) == 0 {
		p.Changes = nil
	}
	return p, err
}

// Live asks whether the gateway runs at all.
func (c *Client) Live(ctx context.Context) error {
	_, err := c.ask(ctx, "/livez")
	return err
}

// Ready asks whether every tunnel and listener is open. The error says which is not.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.ask(ctx, "/readyz")
	return err
}

func (c *Client) get(ctx context.Context, path string, to any) error {
	body, err := c.ask(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("the gateway at %s gives an answer that cannot be read: %w", c.name, err)
	}
	return nil
}

// ask returns the answer, which is an error when it is not OK.
func (c *Client) ask(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, fmt.Errorf("ask the gateway at %s: %w", c.name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of the gateway at %s: %w", c.name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the gateway at %s answers: %s", c.name, strings.TrimSpace(string(body)))
	}
	return body, nil
}
