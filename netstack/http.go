package netstack

import (
	"net/http"
	"time"
)

// HTTPTransport returns a transport for http.Client whose connections go through the
// tunnel, with the limits of net/http's default. It obeys no proxy from the environment.
// Call its CloseIdleConnections when it is no longer needed.
func (n *Net) HTTPTransport() *http.Transport {
	return &http.Transport{
		DialContext:           n.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}
