// Consuming with nothing but stubs: one Consume stream, and a goroutine for each batch. With Go and protoc:
//
//	go generate && go run . unix:/run/offramp/offramp.sock orders
package main

//go:generate go build -o bin/ tool
//go:generate protoc -I ../../../proto --plugin=bin/protoc-gen-go --plugin=bin/protoc-gen-go-grpc --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. offramp/v1/consumer.proto offramp/v1/error.proto offramp/v1/record.proto

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	pb "consume/offramp/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func work(batch *pb.Batch) *pb.Settlement {
	for _, record := range batch.Records {
		if _, err := fmt.Println(string(record.Value)); err != nil {
			return &pb.Settlement{Lease: batch.Lease, Outcome: pb.Outcome_OUTCOME_NACK, Reason: err.Error()}
		}
	}
	return &pb.Settlement{Lease: batch.Lease, Outcome: pb.Outcome_OUTCOME_ACK}
}

func main() {
	connection := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	stream := must(pb.NewConsumerServiceClient(connection).Consume(context.Background(), grpc.WaitForReady(true)))
	var writing sync.Mutex
	write := func(request *pb.ConsumeRequest) {
		writing.Lock()
		defer writing.Unlock()
		stream.Send(request) // If it fails, Recv says why.
	}
	client := &pb.Client{Language: "go", Library: "generated"}
	// At most four batches are unsettled at a time; they are worked on at the same time.
	write(&pb.ConsumeRequest{Hello: &pb.Hello{Subscription: os.Args[2], Client: client, Credit: &pb.Credit{Batches: 4}}})
	var inHand sync.WaitGroup
	leaving, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// To leave in order: ask for no more, settle what is in hand, and only then end the stream.
	context.AfterFunc(leaving, func() {
		write(&pb.ConsumeRequest{Draining: true})
		inHand.Wait()
		stream.CloseSend()
	})
	// When the stream breaks, its leases end with it: their records are delivered again, to another.
	for response, err := stream.Recv(); err != io.EOF; response, err = stream.Recv() {
		for _, batch := range must(response, err).Batches {
			inHand.Go(func() { write(&pb.ConsumeRequest{Settlements: []*pb.Settlement{work(batch)}}) })
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
