package proxy

import "time"

// NewMixed makes a proxy that speaks SOCKS5 and HTTP on one listener, as NewSOCKS5 and
// NewHTTP do: the first byte tells which.
func NewMixed(o Options) (*Server, error) { return newServer("proxy", serveMixed, o) }

func serveMixed(f *flow) {
	var first [1]byte
	f.client.SetReadDeadline(time.Now().Add(f.o.HandshakeTimeout))
	if _, err := f.client.Read(first[:]); err != nil {
		if isTimeout(err) {
			f.refused(ReasonHandshake, "", err)
		}
		return // otherwise it said nothing and has left
	}
	f.client.SetReadDeadline(time.Time{})
	f.client = &headed{Conn: f.client, head: first[:]}
	if first[0] == socks5Version || first[0] == socks4Version {
		serveSOCKS(f)
		return
	}
	serveHTTP(f)
}
