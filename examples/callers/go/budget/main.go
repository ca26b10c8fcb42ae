// A budget of tokens in two steps: an estimate before the call of a language model, the real cost after it.
//
//	go run ./budget --requests 3 --estimate 2000 --cost 53
package main

import (
	"context"
	"flag"
	"fmt"

	"ratelimitd.example/callers"
)

func main() {
	name := flag.String("tenant", "acme", "")
	requests := flag.Int("requests", 3, "")
	estimate := flag.Uint64("estimate", 2000, "tokens")
	cost := flag.Uint64("cost", 53, "tokens that the model reports in the end")
	limit := callers.ConnectWithFlags(callers.Deny)
	defer limit.Close()

	ctx, tenant := context.Background(), callers.Entry{Key: "tenant", Value: *name}
	for request := range *requests {
		answer := limit.Ask(ctx, "callers", *estimate, tenant)
		if !answer.Admitted {
			fmt.Printf("request %d denied, next try in %.3f s\n", request, answer.Wait.Seconds())
			continue
		}
		// Here the call of the model. If it fails, settle 0.
		result := "settled"
		if err := limit.Settle(ctx, "callers", answer.Receipt, *cost, tenant); err != nil {
			result = fmt.Sprintf("not settled: %v", err)
		}
		fmt.Printf("request %d cost %d, %s\n", request, *cost, result)
	}
}
