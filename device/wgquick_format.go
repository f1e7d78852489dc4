package device

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
)

// maxPrefixesInLine keeps lines readable, and within what Parse reads.
const maxPrefixesInLine = 16

// Format returns the file as wg-quick text in one canonical form, the inverse of Parse. Lines
// that are not obeyed are left out, what came from other files and the environment is in.
// It holds the secrets: write it to no file that others can read.
func (f *File) Format() []byte {
	var b bytes.Buffer
	b.WriteString("[Interface]\n")
	c := f.Config
	if !c.PrivateKey.IsZero() {
		setting(&b, "PrivateKey", c.PrivateKey.Reveal())
	}
	if c.ListenPort != 0 {
		setting(&b, "ListenPort", fmt.Sprint(c.ListenPort))
	}
	if c.FwMark != 0 {
		setting(&b, "FwMark", fmt.Sprintf("%#x", c.FwMark))
	}
	settings(&b, "Address", f.Addresses)
	settings(&b, "DNS", f.DNS)
	settings(&b, "DNS", f.DNSSearch)
	if f.MTU != 0 {
		setting(&b, "MTU", fmt.Sprint(f.MTU))
	}
	for _, p := range c.Peers {
		formatPeer(&b, p, len(f.Sections) > 0)
	}
	for _, s := range f.Sections {
		fmt.Fprintf(&b, "\n[%s]\n", oneLine(s.Name))
		for _, kv := range s.Keys {
			setting(&b, kv.Key, quoteINI(escapeDollar(kv.Value)))
		}
	}
	return b.Bytes()
}

// formatPeer writes one section. In a wireproxy file a peer without AllowedIPs has all of
// them, so there a peer that has none says so.
func formatPeer(b *bytes.Buffer, p PeerConfig, proxy bool) {
	b.WriteString("\n[Peer]\n")
	if name := cleanName(p.Name); name != "" {
		fmt.Fprintf(b, "# Name = %s\n", name)
	}
	setting(b, "PublicKey", p.PublicKey.String())
	if !p.PresharedKey.IsZero() {
		setting(b, "PresharedKey", p.PresharedKey.Reveal())
	}
	if !p.Endpoint.IsZero() {
		setting(b, "Endpoint", p.Endpoint.String())
	}
	settings(b, "AllowedIPs", p.AllowedIPs)
	if proxy && len(p.AllowedIPs) == 0 {
		b.WriteString("AllowedIPs =\n")
	}
	if p.PersistentKeepalive != 0 {
		setting(b, "PersistentKeepalive", fmt.Sprint(int64(p.PersistentKeepalive/time.Second)))
	}
}

func settings[T netip.Prefix | netip.Addr | string](b *bytes.Buffer, key string, values []T) {
	for chunk := range slices.Chunk(values, maxPrefixesInLine) {
		texts := make([]string, 0, len(chunk))
		for _, v := range chunk {
			texts = append(texts, fmt.Sprint(v))
		}
		setting(b, key, strings.Join(texts, ", "))
	}
}

func setting(b *bytes.Buffer, key, value string) {
	fmt.Fprintf(b, "%s = %s\n", oneLine(key), oneLine(value))
}

// escapeDollar keeps Parse from looking in the environment.
func escapeDollar(s string) string {
	if strings.HasPrefix(s, "$") {
		return "$" + s
	}
	return s
}

// oneLine keeps a File that was not made by Parse from adding lines of its own.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\t' {
			return ' '
		}
		return c
	}, s)
}
