// A client of ShouldRateLimit on grpc-go, the library of most callers of envoyproxy/ratelimit. It sends the bytes of a
// request as they are, so it needs no generated code. The last line of its output is `answered N failed N`; the reason
// of the first failure comes before it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// rawCodec passes messages as bytes.
type rawCodec struct{}

func (rawCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }

func main() {
	address := flag.String("address", "", "host:port")
	ca := flag.String("ca", "", "trusted authorities (PEM); without it clear text")
	cert := flag.String("cert", "", "the certificate to show (PEM)")
	key := flag.String("key", "", "its key (PEM)")
	name := flag.String("server-name", "", "the name in the certificate of the server")
	request := flag.String("request", "", "the request in hexadecimal")
	calls := flag.Int("calls", 1, "how many calls; 0: until the standard input ends")
	fresh := flag.Bool("fresh", false, "a connection for each call")
	flag.Parse()

	message, err := hex.DecodeString(*request)
	if err != nil {
		log.Fatal(err)
	}
	security, err := transportCredentials(*ca, *cert, *key, *name)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		// The end is all that matters.
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	goOn := func(done int) bool {
		if *calls > 0 {
			return done < *calls
		}
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	connect := func() *grpc.ClientConn {
		connection, err := grpc.NewClient(*address, grpc.WithTransportCredentials(security))
		if err != nil {
			log.Fatal(err)
		}
		return connection
	}
	kept := connect()
	answered, failed := 0, 0
	for goOn(answered + failed) {
		connection := kept
		if *fresh {
			connection = connect()
		}
		if err := call(connection, message); err == nil {
			answered++
		} else {
			if failed == 0 {
				fmt.Println(err)
			}
			failed++
		}
		if *fresh {
			connection.Close()
		}
	}
	fmt.Printf("answered %d failed %d\n", answered, failed)
}

func call(connection *grpc.ClientConn, message []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var answer []byte
	return connection.Invoke(ctx, method, &message, &answer, grpc.ForceCodec(rawCodec{}))
}

func transportCredentials(ca, cert, key, name string) (credentials.TransportCredentials, error) {
	if ca == "" {
		return insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: name}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate", ca)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}
