// An API server that answers 429 with Retry-After.
//
//	go run ./api --port 9000
//	curl -i -H 'X-User: ann' localhost:9000
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"math"
	"net/http"

	"ratelimitd.example/callers"
)

func main() {
	port := flag.Int("port", 9000, "the port to serve")
	// Without a decision it lets the request pass. With -on-failure deny it answers 503.
	limit := callers.ConnectWithFlags(callers.Allow)
	defer limit.Close()
	// A multiplexer of its own: packages that gRPC uses register pages in the default one.
	api := http.NewServeMux()
	api.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		user := cmp.Or(r.Header.Get("X-User"), "anonymous")
		answer := limit.Ask(r.Context(), "callers", 1, callers.Entry{Key: "user", Value: user})
		if answer.Admitted {
			fmt.Fprintln(w, "hello")
			return
		}
		// Whole seconds, rounded up: a client that comes back then is admitted.
		w.Header().Set("Retry-After", fmt.Sprint(math.Ceil(answer.Wait.Seconds())))
		if answer.Decided {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		} else {
			http.Error(w, "no decision", http.StatusServiceUnavailable)
		}
	})
	log.Fatal(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), api))
}
