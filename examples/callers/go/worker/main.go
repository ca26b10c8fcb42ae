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
	key := flag.String("key", "third_party", "third_party, or third_party_queue")
	name := flag.String("name", "api.example.com", "the third party")
	jobs := flag.Int("jobs", 10, "how many calls to make")
	// Without a decision it waits until ratelimitd is back.
	limit := callers.ConnectWithFlags(callers.Deny)
	defer limit.Close()
	start := time.Now()
	for job := range *jobs {
		denied, err := limit.Wait(context.Background(), "callers", callers.Entry{Key: *key, Value: *name})
		if err != nil {
			log.Fatal(err)
		}
		// Here the call to the third party.
		fmt.Printf("job %d after %.3f s, denied %d\n", job, time.Since(start).Seconds(), denied)
	}
}
