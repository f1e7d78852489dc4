package gateway

import (
	"io"
	"strconv"
	"strings"
	"testing"
)

// wg-quick files as people really have them. NEAR and FAR stand for keys, PORT for the
// peer's port. Each must carry a request through the tunnel.
var oddFiles = map[string]string{
	"byte-order mark and CRLF":   "\ufeff[Interface]\r\nPrivateKey = NEAR\r\nAddress = 10.0.0.2/24\r\n\r\n[Peer]\r\nPublicKey = FAR\r\nAllowedIPs = 10.0.0.0/24\r\nEndpoint = 127.0.0.1:PORT\r\n",
	"any case, no blanks":        "[INTERFACE]\nprivatekey=NEAR\naddress=10.0.0.2/24\n[peer]\nPUBLICKEY=FAR\nallowedips=10.0.0.0/24\nendPoint=127.0.0.1:PORT",
	"comments anywhere":          "# mine\n[Interface] # here\n; and so\nPrivateKey = NEAR # secret\nAddress = 10.0.0.2/24#end\n\n#[Peer]\n[Peer]\n# PublicKey = no\nPublicKey = FAR\nAllowedIPs = 10.0.0.0/24 # all\nEndpoint = 127.0.0.1:PORT\n",
	"lists repeated and comma":   "[Interface]\nPrivateKey = NEAR\nAddress = 10.0.0.2/24, fd00::2/64\nAddress = 10.0.0.3\n[Peer]\nPublicKey = FAR\nAllowedIPs = 10.0.1.0/24,10.0.2.0/24 , 10.0.0.0/25\nAllowedIPs = 10.0.0.128/25\nEndpoint = 127.0.0.1:PORT\n",
	"bare addresses":             "[Interface]\nPrivateKey = NEAR\nAddress = 10.0.0.2\n[Peer]\nPublicKey = FAR\nAllowedIPs = 10.0.0.1\nEndpoint = 127.0.0.1:PORT\n",
	"hooks and what needs root":  "[Interface]\nPrivateKey = NEAR\nAddress = 10.0.0.2/24\nTable = off\nSaveConfig = true\nPreUp = echo 1\nPostUp = iptables -A FORWARD -i %i -j ACCEPT; echo 2\nPostDown = false\n[Peer]\nPublicKey = FAR\nAllowedIPs = 10.0.0.0/24\nEndpoint = 127.0.0.1:PORT\n",
	"values off and blank":       "[Interface]\nPrivateKey = NEAR\nAddress = 10.0.0.2/24\nFwMark = off\nDNS =\n[Peer]\nPublicKey = FAR\nPresharedKey =\nAllowedIPs = 10.0.0.0/24\nPersistentKeepalive = off\nEndpoint = 127.0.0.1:PORT\n",
	"exit: all routes, DNS list": "[Interface]\nPrivateKey = NEAR\nAddress = 10.0.0.2/32\nDNS = 10.0.0.1, corp.example, example.com\nMTU = 1280\n[Peer]\nPublicKey = FAR\nAllowedIPs = 0.0.0.0/0, ::/0\nPersistentKeepalive = 25\nEndpoint = 127.0.0.1:PORT\n",
	"peer before interface":      "[Peer]\nPublicKey = FAR\nAllowedIPs = 10.0.0.0/24\nEndpoint = localhost:PORT\n[Interface]\nAddress = 10.0.0.2/24\nPrivateKey = NEAR\n",
	"one prefix at two peers":    "[Interface]\nPrivateKey = NEAR\nAddress = 10.0.0.2/24\n[Peer]\nPublicKey = AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=\nAllowedIPs = 10.0.0.0/24\n[Peer]\nPublicKey = FAR\nAllowedIPs = 10.0.0.0/24\nEndpoint = 127.0.0.1:PORT\n",
	"key in a file of its own":   "[Interface]\nPrivateKeyFile = near.key\nAddress = 10.0.0.2/24\n[Peer]\nPublicKey = FAR\nAllowedIPs = 10.0.0.0/24\nEndpoint = 127.0.0.1:PORT\n",
}

func TestOddFilesEndToEnd(t *testing.T) {
	for name, text := range oddFiles {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			text := strings.NewReplacer("NEAR", f.near.Reveal(), "FAR", f.key.Public().String(), "PORT", strconv.Itoa(int(f.port))).Replace(text)
			r := newRig(t, map[string]string{"odd.conf": text, "near.key": f.near.Reveal() + "\n"}, nil)
			r.options.Sources = Sources{Files: []string{r.path("odd.conf")}, HTTP: []string{"127.0.0.1:0"}}
			r.run()
			resp, err := viaHTTP(t, r.listen(HTTP, "tcp")).Get("http://10.0.0.1/hello")
			mustDo(t, err)
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "GET 10.0.0.1/hello " {
				t.Errorf("answer %q, %v", body, err)
			}
		})
	}
}
