// An app that is a gRPC server, and handles batches of the sidecar (push.grpc). With Go and protoc:
//
//	go generate && go run . 127.0.0.1:50051
package main

//go:generate go build -o bin/ tool
//go:generate protoc -I ../../../proto --plugin=bin/protoc-gen-go --plugin=bin/protoc-gen-go-grpc --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. offramp/v1/handler.proto offramp/v1/error.proto offramp/v1/record.proto

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	pb "handler/offramp/v1"

	"google.golang.org/grpc"
)

type handler struct {
	pb.UnimplementedHandlerServiceServer
}

func (handler) Handle(_ context.Context, request *pb.HandleRequest) (*pb.HandleResponse, error) {
	response := &pb.HandleResponse{Outcome: pb.Outcome_OUTCOME_ACK}
	for index, record := range request.Batch.Records {
		if len(record.Value) == 0 {
			response.Parts = append(response.Parts, &pb.Part{
				First: uint32(index), Count: 1, Outcome: pb.Outcome_OUTCOME_REJECT, Reason: "not an order",
			})
			continue
		}
		fmt.Println(string(record.Value))
	}
	return response, nil
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterHandlerServiceServer(server, handler{})
	log.Fatal(server.Serve(listener))
}
