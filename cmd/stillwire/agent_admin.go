package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/mesh"
)

// socketName is the agent's admin socket in its state folder.
const socketName = "agent.sock"

// serveAdmin serves what the agent knows on a unix socket that this user and root alone may use,
// until ctx is done. A node does without it rather than not run.
func serveAdmin(ctx context.Context, path string, agent *mesh.Agent, log zerolog.Logger) (wait func()) {
	ln, err := listenSocket(path)
	if err != nil {
		log.Error().Err(err).Str("socket", path).Msg("no admin socket: stillwire status and plan cannot ask this agent")
		return func() {}
	}
	server := &http.Server{
		Handler: agent.Handler(), ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: stdlog.New(io.Discard, "", 0),
	}
	var work sync.WaitGroup
	work.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Warn().Err(err).Str("socket", path).Msg("the admin socket has ended")
		}
	})
	work.Go(func() {
		<-ctx.Done()
		_ = server.Close() // who was asking has the agent's end to see
	})
	return work.Wait
}

// listenSocket takes the place of a socket that nobody answers on.
func listenSocket(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close() // it was only to see whether somebody answers
		return nil, fmt.Errorf("%s is answered by another agent: stop it, or give this one another --state-dir", path)
	}
	// Made under another name, a socket is never there with more rights than it shall have.
	fresh := path + ".new"
	_ = os.Remove(fresh) // of an agent that was killed
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// askAgent gets one path of a running agent's admin socket.
func askAgent(socket, path string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	client := &http.Client{Transport: transport, Timeout: answerTime}
	response, err := client.Get("http://localhost" + path)
	if errors.Is(err, os.ErrPermission) {
		return "", fmt.Errorf("the agent's socket %s is closed to this user: ask as root or as the agent's user", socket)
	}
	if err != nil {
		return "", fmt.Errorf("no agent answers on %s (%w): start one, or give the state folder of the one that runs", socket, errors.Unwrap(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", socket, strings.TrimSpace(string(text)))
	}
	return string(text), err
}

// planRunning asks a running agent.
func (c *planCommand) planRunning(p *program) error {
	text, err := askAgent(filepath.Join(c.Agent, socketName), "/plan")
	if err != nil {
		return err
	}
	if err := p.println(strings.TrimSuffix(text, "\n")); err != nil {
		return err
	}
	if !strings.HasSuffix(text, "nothing would change\n") {
		return reported{exitChanges}
	}
	return nil
}
