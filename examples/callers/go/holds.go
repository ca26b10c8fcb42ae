package callers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Holds reserves estimates and commits real costs, over HTTP: Envoy's protocol has no holds. Its zero value is not
// usable. It may be used by several goroutines at once.
type Holds struct {
	// Address is host:port of the HTTP port.
	Address string
	// Deadline is for one try.
	Deadline time.Duration
}

type holdDescriptor struct {
	Entries []map[string]string `json:"entries"`
	Hits    uint64              `json:"hitsAddend"`
}

type holdRequest struct {
	Domain      string           `json:"domain"`
	Descriptors []holdDescriptor `json:"descriptors"`
	TTL         string           `json:"ttl,omitempty"`
	ID          string           `json:"id,omitempty"`
}

// Reserve asks for the estimate of a job that ends within the ttl. The id is empty if it does not fit. After an error,
// ask again: what a lost answer reserved stays charged.
func (h Holds) Reserve(ctx context.Context, domain string, hits uint64, ttl time.Duration, entries ...Entry) (id string, err error) {
	answer, err := h.post(ctx, "/holds", newHoldRequest(domain, hits, entries, ttl.String(), ""))
	return answer.ID, err
}

// Renew keeps a job's place of a limit with concurrency. It returns false if the place has ended, and no other is free.
func (h Holds) Renew(ctx context.Context, domain, id string, entries ...Entry) (isKept bool, err error) {
	answer, err := h.post(ctx, "/holds/renew", newHoldRequest(domain, 0, entries, "", id))
	return answer.OverallCode == "OK", err
}

// Commit books the real cost of a job once, however often you call this; 0 releases the hold. After an error, call it
// again.
func (h Holds) Commit(ctx context.Context, domain, id string, hits uint64, entries ...Entry) (result string, err error) {
	answer, err := h.post(ctx, "/holds/commit", newHoldRequest(domain, hits, entries, "", id))
	return answer.Result, err
}

func newHoldRequest(domain string, hits uint64, entries []Entry, ttl, id string) holdRequest {
	descriptor := holdDescriptor{Hits: hits}
	for _, entry := range entries {
		descriptor.Entries = append(descriptor.Entries, map[string]string{"key": entry.Key, "value": entry.Value})
	}
	return holdRequest{Domain: domain, Descriptors: []holdDescriptor{descriptor}, TTL: ttl, ID: id}
}

func (h Holds) post(ctx context.Context, path string, body holdRequest) (answer struct{ ID, Result, OverallCode string }, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Deadline)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.Address+path, bytes.NewReader(text))
	if err != nil {
		return answer, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		return answer, err
	}
	// In JSON, 503 is the result of a commit.
	if response.Header.Get("Content-Type") != "application/json" {
		return answer, fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(text))
	}
	return answer, json.Unmarshal(text, &answer)
}
