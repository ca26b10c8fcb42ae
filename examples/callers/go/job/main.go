// A job that reserves a place and an estimate of its tokens, works, and commits the real cost once. The address is that
// of the HTTP port.
//
//	go run ./job --address localhost:8080 --estimate 50000 --cost 31840 --seconds 1
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
	address := flag.String("address", "localhost:8080", "host:port of the HTTP port")
	deadline := flag.Float64("deadline", 0.25, "seconds for one try")
	name := flag.String("tenant", "acme", "")
	estimate := flag.Uint64("estimate", 50000, "tokens")
	cost := flag.Uint64("cost", 31840, "tokens that the job has used in the end")
	seconds := flag.Float64("seconds", 0, "how long the job works")
	flag.Parse()
	holds := callers.Holds{Address: *address, Deadline: time.Duration(*deadline * float64(time.Second))}
	ctx, budget := context.Background(), callers.Entry{Key: "budget", Value: *name}

	var id string
	for {
		var err error
		if id, err = holds.Reserve(ctx, "callers", *estimate, 30*time.Minute, budget); err != nil {
			log.Printf("no decision: %v", err)
		} else if id != "" {
			break
		}
		fmt.Println("job waits 1.000 s")
		time.Sleep(time.Second)
	}
	fmt.Println("job starts")
	// Here the work. A job that fails before it used anything commits 0.
	for range 2 {
		time.Sleep(time.Duration(*seconds / 2 * float64(time.Second)))
		// Renew at least twice a minute, the rule's period. Without an answer, the place stays until then.
		if isKept, err := holds.Renew(ctx, "callers", id, budget); err != nil {
			log.Printf("not renewed: %v", err)
		} else if !isKept {
			fmt.Println("job lost its place")
		}
	}
	// Store the id with the job, so that another process can commit it after a crash.
	for {
		result, err := holds.Commit(ctx, "callers", id, *cost, budget)
		if err == nil {
			fmt.Printf("job cost %d, %s\n", *cost, result)
			return
		}
		log.Printf("not committed: %v", err)
		time.Sleep(time.Second)
	}
}
