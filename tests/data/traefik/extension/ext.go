// Package ext is empty: Traefik keeps it beside its own module, which is published without it.
package ext

// HTTP extends the configuration of HTTP.
type HTTP struct{}

// Router extends the configuration of a router.
type Router struct{}
