// Package gateway runs WireGuard tunnels without any privilege and the services on them:
// SOCKS5 and HTTP proxies into a tunnel, ports forwarded into it, and ports published to it.
// It is what the command stillwire gateway is made of.
//
//	         this machine             the process               the peers
//	socks5, http, forward  ->  Listen -> Net.DialContext  ->  target
//	     publish   target  <-  net.Dialer <- Net.Listen   <-  peer
//
// # What it owns
//
// A [Gateway] owns its tunnels ([netstack.Net]), its listeners and every flow between them.
// Run starts all of it and returns when all of it has ended. It changes nothing outside the
// process but unix sockets that it makes, and the state folder where one is asked for; it
// starts no process and reads no environment but the $NAMEs in wireproxy files.
//
// All methods of a Gateway may be called from any goroutine.
//
// # What it is asked for
//
// [Sources] name files and flags; [Load] makes a [Spec] of them, or refuses all of it with
// every fault named: file, line, field, value and what to do. Flags, a YAML file and
// wireproxy's own sections in a tunnel's file can be mixed. Two services in one place, an
// unknown tunnel, or a listener that other machines could reach by mistake are faults.
//
// # The YAML file
//
//	tunnels:                       # one or more
//	  - wg0.conf                   # a wg-quick or wireproxy file
//	  - name: office               # default: the file's name without its ending
//	    file: office.conf
//	    hostDNS: false             # true: names are resolved by this machine, not the tunnel
//	socks5:                        # and http: alike
//	  - wg0/127.0.0.1:1080         # the form of --socks5: [TUNNEL/][USER:PASSFILE@]LISTEN
//	  - listen: 0.0.0.0:1080       # or in full
//	    tunnel: office             # may be left out when there is one tunnel
//	    users: users.txt           # a file of USER:PASSWORD lines
//	    open: false                # true: beyond loopback without users
//	forward:                       # from here into the tunnel
//	  - tcp/127.0.0.1:5432=10.0.0.5:5432
//	  - listen: udp/127.0.0.1:53
//	    target: 10.0.0.1:53        # a name is resolved as hostDNS says
//	    tunnel: wg0
//	    open: false
//	    idle: 30s                  # silence after which a flow ends; off: never
//	publish:                       # from the tunnel to here
//	  - tcp/8080=127.0.0.1:80      # on every address of the tunnel
//	  - listen: tcp/10.0.0.2:8443  # on one of them
//	    target: unix:/run/app.sock # a TCP publish may end in a unix socket
//	admin: 127.0.0.1:9080          # or {listen: …, open: true}
//	drain: 20s                     # at shutdown: how long old flows may go on
//	stateDir: /var/lib/stillwire   # where learnt endpoints survive a restart
//	uapiDir: /var/run/wireguard    # where wg(8) finds a socket for each tunnel
//
// LISTEN is ADDRESS:PORT, PORT (which means 127.0.0.1), *:PORT (every address) or unix:PATH.
// A unix socket belongs to this user alone, unless open is true or users are given. Relative
// paths are taken from the YAML file's folder. A flag wins over the file's setting, and
// --open counts as open: true everywhere.
//
// # wireproxy files
//
// [Socks5], [http], [TCPClientTunnel], [TCPServerTunnel] and [UDPProxyTunnel] are read as
// they are, with two differences that are said when they matter: a BindAddress beyond
// loopback needs Username and Password or --open, and ":1080" is loopback and not every
// address. The Target of a TCPServerTunnel is resolved by this machine, on whose network it
// is dialled. [STDIOTunnel], [SNI] and [Resolve] are ignored, with the reason.
//
// # Change
//
// [Gateway.Reload], and a change of any file that was read, loads everything anew and
// applies the difference. What cannot be obeyed is refused as a whole: new listeners and
// tunnels are opened first, and closed again should a later step fail. A service that stays
// in its place keeps its listener and its flows, whatever else of it changes; new flows are
// treated as the new Spec says. A tunnel that stays keeps its sessions, also when its file is
// renamed or two of them swap their ports: it is known by its key. Only what is no
// longer asked for is closed: its listener at once, its flows after the drain time.
//
// What the system refuses, such as a port that another program holds, is tried again by
// itself until it is accepted or something else is asked for. Files are regular files: a
// pipe is read only where the process was started with it, as /dev/stdin or <(…). Reading
// that takes longer than 10 s is given up.
//
// # Admin listener
//
// GET alone, and nothing changes by it. /livez answers ok while the process lives. /readyz
// answers ok when every tunnel and every listener is up and the gateway is not draining, and
// else 503 with one reason a line; whether peers answer is no part of it. /status is a
// [Status] in JSON, which tells of peers that do not. /plan says what a reload would change,
// on a unix socket and to the gateway's own user or root only. Requests over TCP must name an
// IP address or localhost as Host.
package gateway
