// Package callers asks ratelimitd over gRPC, with the messages that Envoy's own Go packages contain.
package callers

import (
	"context"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// Client asks for decisions. It may be used by several goroutines at once.
type Client struct {
	connection *grpc.ClientConn
	service    rls.RateLimitServiceClient
}

// Connect returns a client of the gRPC port at address. Replicas behind one DNS name share the calls.
func Connect(address string) (*Client, error) {
	connection, err := grpc.NewClient("dns:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	if err != nil {
		return nil, err
	}
	return &Client{connection, rls.NewRateLimitServiceClient(connection)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.connection.Close() }

// Ask asks for one hit. The duration is how long to wait before the work, or, if the hit is not admitted, before the
// next try. An error means that there is no decision: the caller says what its service does then.
func (c *Client) Ask(ctx context.Context, domain string, entries ...Entry) (bool, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	descriptor := &common.RateLimitDescriptor{}
	for _, entry := range entries {
		descriptor.Entries = append(descriptor.Entries,
			&common.RateLimitDescriptor_Entry{Key: entry.Key, Value: entry.Value})
	}
	answer, err := c.service.ShouldRateLimit(ctx, &rls.RateLimitRequest{
		Domain:      domain,
		Descriptors: []*common.RateLimitDescriptor{descriptor},
	})
	if err != nil {
		return false, 0, err
	}
	if answer.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
		// The delay of a queue (mode: queue); no other limit sends one.
		delay := answer.GetDynamicMetadata().GetFields()["delay_ms"].GetNumberValue()
		return true, time.Duration(delay * float64(time.Millisecond)), nil
	}
	var wait time.Duration
	for _, status := range answer.Statuses {
		if status.Code == rls.RateLimitResponse_OVER_LIMIT {
			wait = max(wait, status.DurationUntilReset.AsDuration())
		}
	}
	return false, wait, nil
}

// Wait returns when the work may begin, with the number of denials before.
func (c *Client) Wait(ctx context.Context, domain string, entries ...Entry) (denied int, err error) {
	for {
		admitted, wait, err := c.Ask(ctx, domain, entries...)
		if err != nil {
			return denied, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return denied, ctx.Err()
		}
		if admitted {
			return denied, nil
		}
		denied++
	}
}
