// Package device owns one WireGuard interface: its keys, its configuration, the live device,
// and where its peers are.
//
//	f, err := device.ParseFile("wg0.conf")
//	d, err := device.Open(device.Options{TUN: tunDevice})
//	changes, err := d.Apply(ctx, f.Config)
//
// What is wanted is a Config, what is seen is a State, and Diff is the pure function between
// them. Apply writes that difference and nothing else: it never replaces a list, never
// re-creates a peer, and a second Apply writes nothing. So a change is felt by the peer it
// concerns at most, and there no packet is lost either.
//
//	Config --Normalized--> Diff <-- what the device is
//	                        |
//	                      []Op --UAPI--> wireguard-go
//	                        |
//	                     []Change, for people
//
// An endpoint is three values: declared, applied, live (PeerState). A peer that roams is
// followed and never dragged back. One goroutine, the endpoint supervisor, resolves names off
// the path of Apply and moves the endpoint of a peer whose session is dead.
//
// The package embeds golang.zx2c4.com/wireguard unforked. It imports neither a network stack
// nor anything of Kubernetes, starts no process, and handles no signal. Unless a comment says
// otherwise, everything may be used from any goroutine.
package device
