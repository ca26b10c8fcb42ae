// A crawler or a queue worker that calls a third party and never exceeds what the third party allows.
//
//	go run ./worker --jobs 10 --url http://localhost:9000
//	go run ./worker --jobs 10 --key third_party_queue
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"ratelimitd.example/callers"
)

func main() {
	key := flag.String("key", "third_party", "third_party, or third_party_queue")
	name := flag.String("name", "api.example.com", "the third party")
	jobs := flag.Int("jobs", 10, "how many calls to make")
	url := flag.String("url", "", "what to call; without it nothing is called")
	// Without a decision it waits until ratelimitd is back.
	limit := callers.ConnectWithFlags(callers.Deny)
	defer limit.Close()
	thirdParty := callers.Entry{Key: *key, Value: *name}
	ctx, start := context.Background(), time.Now()
	for job := range *jobs {
		for denied := 0; ; {
			more, err := limit.Wait(ctx, "callers", thirdParty)
			if err != nil {
				log.Fatal(err)
			}
			denied += more
			retryAfter := call(*url)
			if retryAfter == "" {
				fmt.Printf("job %d after %.3f s, denied %d\n", job, time.Since(start).Seconds(), denied)
				break
			}
			// No worker calls it until then.
			time.Sleep(limit.Pause(ctx, "callers", retryAfter, thirdParty))
		}
	}
}

// call calls the third party. It returns its Retry-After if it has had too many calls.
func call(url string) string {
	if url == "" {
		return ""
	}
	response, err := http.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests {
		return ""
	}
	return cmp.Or(response.Header.Get("Retry-After"), "1")
}
