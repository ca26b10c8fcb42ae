package callers

import (
	"flag"
	"log"
	"time"
)

// ConnectWithFlags defines the flags that all programs have, reads all flags, and connects. onFailure is the default of
// the program. It ends the program if a flag is wrong.
func ConnectWithFlags(onFailure Policy) *Client {
	address := flag.String("address", "127.0.0.1:8081", "the gRPC port of ratelimitd")
	policy := flag.String("on-failure", string(onFailure),
		"without a decision: allow (fail open) or deny (fail closed)")
	deadline := flag.Float64("deadline", 0.25, "seconds for one decision, with its tries")
	flag.Parse()
	client, err := Connect(*address, Policy(*policy), time.Duration(*deadline*float64(time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	return client
}
