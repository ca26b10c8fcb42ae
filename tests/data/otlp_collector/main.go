// Receives spans with the OTLP receiver of the OpenTelemetry Collector, and prints each batch as one line of JSON.
// Arguments: the addresses for gRPC and for HTTP.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, grpcAddress, httpAddress string) error {
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	written := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": grpcAddress},
		"http": map[string]any{"endpoint": httpAddress},
	}})
	if err := written.Unmarshal(config); err != nil {
		return err
	}
	printer, err := consumer.NewTraces(printSpans)
	if err != nil {
		return err
	}
	receiver, err := factory.CreateTraces(ctx, receivertest.NewNopSettings(), config, printer)
	if err != nil {
		return err
	}
	if err := receiver.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	fmt.Println("listening")
	<-ctx.Done()
	return receiver.Shutdown(context.Background())
}

func printSpans(_ context.Context, spans ptrace.Traces) error {
	line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(spans)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}
