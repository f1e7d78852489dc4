package kilo

// The annotations of a node. Those of the first group are the administrator's, those of the second
// the agent's.
const (
	prefix = "kilo.squat.ai/"

	forceEndpoint       = prefix + "force-endpoint"
	forceInternalIP     = prefix + "force-internal-ip"
	leader              = prefix + "leader"
	location            = prefix + "location"
	persistentKeepalive = prefix + "persistent-keepalive"
	allowedLocationIPs  = prefix + "allowed-location-ips"

	endpoint            = prefix + "endpoint"
	internalIP          = prefix + "internal-ip"
	key                 = prefix + "key"
	lastSeen            = prefix + "last-seen"
	wireGuardIP         = prefix + "wireguard-ip"
	discoveredEndpoints = prefix + "discovered-endpoints"
	granularity         = prefix + "granularity"
)

// DefaultLocationLabel is the label that says where a node without the annotation is.
const DefaultLocationLabel = "topology.kubernetes.io/region"
