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
	address := flag.String("address", "127.0.0.1:8081", "the gRPC port of ratelimitd")
	port := flag.Int("port", 9000, "the port to serve")
	flag.Parse()

	limit, err := callers.Connect(*address)
	if err != nil {
		log.Fatal(err)
	}
	// A multiplexer of its own: packages that gRPC uses register pages in the default one.
	api := http.NewServeMux()
	api.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		user := cmp.Or(r.Header.Get("X-User"), "anonymous")
		admitted, wait, err := limit.Ask(r.Context(), "callers", callers.Entry{Key: "user", Value: user})
		if err != nil {
			// Without a decision this API lets the request pass. An API whose upstream must be protected answers 503.
			log.Printf("no decision: %v", err)
			admitted = true
		}
		if !admitted {
			// Whole seconds, rounded up: a client that comes back then is admitted.
			w.Header().Set("Retry-After", fmt.Sprint(math.Ceil(wait.Seconds())))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		fmt.Fprintln(w, "hello")
	})
	log.Fatal(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), api))
}
