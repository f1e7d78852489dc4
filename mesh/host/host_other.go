//go:build !linux

package host

import (
	"context"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/stillwire/stillwire/mesh"
)

// Host cannot be had here.
type Host struct{}

// New returns ErrUnsupported.
func New(Options) (*Host, error) { return nil, ErrUnsupported }

// OpenTUN returns ErrUnsupported.
func (*Host) OpenTUN() (tun.Device, error) { return nil, ErrUnsupported }

// Apply returns ErrUnsupported.
func (*Host) Apply(context.Context, mesh.HostPlan) ([]mesh.HostChange, []mesh.Problem, error) {
	return nil, nil, ErrUnsupported
}

// Plan returns ErrUnsupported.
func (*Host) Plan(mesh.HostPlan) ([]mesh.HostChange, error) { return nil, ErrUnsupported }

// Facts returns ErrUnsupported.
func (*Host) Facts() (mesh.HostFacts, error) { return mesh.HostFacts{}, ErrUnsupported }

// Run returns ErrUnsupported.
func (*Host) Run(context.Context, func()) error { return ErrUnsupported }

// Uninstall returns ErrUnsupported.
func Uninstall(context.Context, Options) ([]mesh.HostChange, error) { return nil, ErrUnsupported }
