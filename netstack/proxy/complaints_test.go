package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

func TestRefusalsAreToldAtOnceThenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var c complaints
		add := func(r Reason, client string) {
			c.add(r, grievance{zerolog.New(&log), client, "10.0.0.5:5432", errors.New("said")})
			synctest.Wait()
		}
		for i := range 100 {
			add(ReasonTimeout, fmt.Sprint("client", i))
		}
		add(ReasonAuth, "mallory")
		add(ReasonCanceled, "anna")
		<-time.After(complaintPause + time.Second)
		synctest.Wait()
		<-time.After(5 * complaintPause) // nothing to tell
		add(ReasonTimeout, "late")
		add(ReasonTimeout, "last")
		c.end()
		want := strings.Join([]string{
			`{"level":"warn","reason":"timeout","count":1,"client":"client0","target":"10.0.0.5:5432","last":"said","message":"flows are refused"}`,
			`{"level":"warn","reason":"auth","count":1,"client":"mallory","target":"10.0.0.5:5432","message":"flows are refused"}`,
			`{"level":"warn","reason":"timeout","count":99,"client":"client99","target":"10.0.0.5:5432","last":"said","message":"flows are refused"}`,
			`{"level":"warn","reason":"timeout","count":1,"client":"late","target":"10.0.0.5:5432","last":"said","message":"flows are refused"}`,
			`{"level":"warn","reason":"timeout","count":1,"client":"last","target":"10.0.0.5:5432","last":"said","message":"flows are refused"}`,
			"",
		}, "\n")
		if log.String() != want {
			t.Errorf("log is\n%swant\n%s", log.String(), want)
		}
	})
}

// A client may wait to be asked for its credential: that is no trouble, unless it goes then.
func TestClientThatIsAskedForItsCredentialIsNoTrouble(t *testing.T) {
	users := must[Users](t)(NewUsers(NewCredentials("anna", "secret")))
	tg := listenTarget(t, &host{})
	for _, tt := range []struct {
		name, second, want string
	}{
		{"it has one", "Proxy-Authorization: Basic YW5uYTpzZWNyZXQ=\r\n", ""},
		{"it has none", "", `"reason":"auth","count":1`},
		{"a wrong one", "Proxy-Authorization: Basic YW5uYTp3cm9uZw==\r\n", `"reason":"auth","count":1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log lockedBuffer
			s := must[*Server](t)(NewHTTP(Options{Dialer: &host{}, Users: users, Log: zerolog.New(&log).Level(zerolog.InfoLevel)}))
			c := dialProxy(t, serve(t, s))
			for _, field := range []string{"", tt.second} {
				fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n%s\r\n", tg.address, field)
			}
			if tt.want == "" {
				tg.accept(t).Close()
			}
			c.(*net.TCPConn).CloseWrite()
			eventually(t, "the flow ends", func() bool { return s.Counters().Accepted == 1 && s.Live() == 0 })
			got := log.String()
			if strings.Contains(got, "warn") != (tt.want != "") || !strings.Contains(got, tt.want) || strings.Contains(got, "secret") {
				t.Errorf("log is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLogHasNoMoreOfARequestThanItsHost(t *testing.T) {
	var log lockedBuffer
	dialer := dialerFunc(func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED })
	s := must[*Server](t)(NewHTTP(Options{Dialer: dialer, Log: zerolog.New(&log).Level(zerolog.DebugLevel)}))
	c := dialProxy(t, serve(t, s))
	fmt.Fprint(c, "GET http://target.example/path?token=hunter2 HTTP/1.1\r\nHost: target.example\r\n\r\n")
	eventually(t, "the refusal is logged", func() bool { return strings.Contains(log.String(), "flow refused") })
	if got := log.String(); strings.Contains(got, "hunter2") || strings.Contains(got, "path") || !strings.Contains(got, `"target":"target.example"`) {
		t.Errorf("log is %s", got)
	}
}
