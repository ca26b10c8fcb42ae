// Package callers asks ratelimitd over gRPC, with the messages that Envoy's own Go packages contain.
package callers

import (
	"context"
	"errors"
	"log"
	"strconv"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// pause is the time between two calls without a decision if the policy is Deny.
const pause = time.Second

// asking tries a call again, with growing pauses, while ratelimitd does not answer. When calls keep failing, the
// throttling stops that, so that they fail at once. settling sends a call once: it would be booked twice.
const (
	asking = `{"loadBalancingConfig": [{"round_robin": {}}],
		"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.5},
		"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.02s",
			"maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	settling = `{"loadBalancingConfig": [{"round_robin": {}}]}`
)

// Policy is what a caller does without a decision.
type Policy string

// Allow goes on (fail open), Deny does not (fail closed).
const (
	Allow Policy = "allow"
	Deny  Policy = "deny"
)

// Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// Answer is a decision.
type Answer struct {
	Admitted bool
	// Wait is before the work if it is admitted, else before the next try.
	Wait time.Duration
	// Decided is false if ratelimitd gave no decision, and this is the answer of the policy.
	Decided bool
	// Receipt is what Settle returns, from a limit with `settle: true`.
	Receipt string
}

// Client asks for decisions. It may be used by several goroutines at once.
type Client struct {
	asks, settles *grpc.ClientConn
	onFailure     Policy
	deadline      time.Duration
	// The second of the last line in the log.
	logged atomic.Int64
}

// Connect returns a client of the gRPC port at address. Replicas behind one DNS name share the calls. The deadline is
// for one decision, with all its tries.
func Connect(address string, onFailure Policy, deadline time.Duration) (*Client, error) {
	if onFailure != Allow && onFailure != Deny {
		return nil, errors.New("the policy is neither allow nor deny")
	}
	asks, err := dial(address, asking)
	if err != nil {
		return nil, err
	}
	settles, err := dial(address, settling)
	if err != nil {
		return nil, errors.Join(err, asks.Close())
	}
	return &Client{asks: asks, settles: settles, onFailure: onFailure, deadline: deadline}, nil
}

func dial(address, config string) (*grpc.ClientConn, error) {
	return grpc.NewClient("dns:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(config),
		// Without this a client finds a service that is back after up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second}}))
}

// Close closes the connections.
func (c *Client) Close() error { return errors.Join(c.asks.Close(), c.settles.Close()) }

// Ask asks for hits, and again until the deadline. Without a decision the policy answers.
//
// A try whose answer was lost may have been counted. Then the limit admits less, never more.
func (c *Client) Ask(ctx context.Context, domain string, hits uint64, entries ...Entry) Answer {
	return c.AskAll(ctx, domain, hits, entries)
}

// AskAll asks for hits of each descriptor: all of them, or none.
func (c *Client) AskAll(ctx context.Context, domain string, hits uint64, descriptors ...[]Entry) Answer {
	answer, err := c.call(ctx, c.asks, domain, hits, descriptors)
	if err != nil {
		if now := time.Now().Unix(); c.logged.Swap(now) != now {
			log.Printf("no decision, on-failure is %s: %v", c.onFailure, err)
		}
		if c.onFailure == Allow {
			return Answer{Admitted: true}
		}
		return Answer{Wait: pause}
	}
	fields := answer.GetDynamicMetadata().GetFields()
	if answer.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
		// The delay of a queue (mode: queue); no other limit sends one.
		delay := fields["delay_ms"].GetNumberValue() * float64(time.Millisecond)
		receipt := fields["receipt"].GetStringValue()
		return Answer{Admitted: true, Wait: time.Duration(delay), Decided: true, Receipt: receipt}
	}
	wait := pause
	// Without response.dynamic_metadata, and for a cost that never fits, there is no time.
	if retryAfter, ok := fields["retry_after_ms"]; ok {
		wait = time.Duration(retryAfter.GetNumberValue() * float64(time.Millisecond))
	}
	return Answer{Wait: wait, Decided: true}
}

// Settle books the real cost of what Ask admitted with the same entries. After an error the estimate stays.
//
// A settle that arrives twice is booked twice. So it waits for a connection until the deadline, and is sent once.
func (c *Client) Settle(ctx context.Context, domain, receipt string, hits uint64, entries ...Entry) error {
	settled := append(entries[:len(entries):len(entries)], Entry{"ratelimitd_receipt", receipt})
	_, err := c.call(ctx, c.settles, domain, hits, [][]Entry{settled}, grpc.WaitForReady(true))
	return err
}

// Pause reports the Retry-After of a third party: until then no caller is admitted by a limit with `feedback`. It returns
// how long to sleep before the next Wait: without a decision you wait alone.
func (c *Client) Pause(ctx context.Context, domain, retryAfter string, entries ...Entry) time.Duration {
	report := append(entries[:len(entries):len(entries)], Entry{"ratelimitd_pause", retryAfter})
	if c.Ask(ctx, domain, 1, report...).Decided {
		return 0
	}
	if seconds, err := strconv.Atoi(retryAfter); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return pause
}

func (c *Client) call(ctx context.Context, connection *grpc.ClientConn, domain string, hits uint64,
	descriptors [][]Entry, options ...grpc.CallOption) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	request := &rls.RateLimitRequest{Domain: domain}
	for _, entries := range descriptors {
		descriptor := &common.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(hits)}
		for _, entry := range entries {
			descriptor.Entries = append(descriptor.Entries,
				&common.RateLimitDescriptor_Entry{Key: entry.Key, Value: entry.Value})
		}
		request.Descriptors = append(request.Descriptors, descriptor)
	}
	return rls.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, request, options...)
}

// Wait returns when the work may begin, with the number of denials before.
func (c *Client) Wait(ctx context.Context, domain string, entries ...Entry) (denied int, err error) {
	for {
		answer := c.Ask(ctx, domain, 1, entries...)
		select {
		case <-time.After(answer.Wait):
		case <-ctx.Done():
			return denied, ctx.Err()
		}
		if answer.Admitted {
			return denied, nil
		}
		denied++
	}
}
