// A crawler or a queue worker that calls a third party and never exceeds what the third party allows.
//
//	go run ./worker --jobs 10
//	go run ./worker --jobs 10 --key third_party_queue
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"ratelimitd.example/callers"
)

func main() {
	address := flag.String("address", "127.0.0.1:8081", "the gRPC port of ratelimitd")
	key := flag.String("key", "third_party", "third_party, or third_party_queue")
	name := flag.String("name", "api.example.com", "the third party")
	jobs := flag.Int("jobs", 10, "how many calls to make")
	flag.Parse()

	limit, err := callers.Connect(*address)
	if err != nil {
		log.Fatal(err)
	}
	defer limit.Close()
	start := time.Now()
	for job := range *jobs {
		denied, err := limit.Wait(context.Background(), "callers", callers.Entry{Key: *key, Value: *name})
		if err != nil {
			log.Fatalf("no decision: %v", err)
		}
		// Here the call to the third party.
		fmt.Printf("job %d after %.3f s, denied %d\n", job, time.Since(start).Seconds(), denied)
	}
}
