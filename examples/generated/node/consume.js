// Consuming with nothing but stubs, which grpc-js makes from the proto at the start: one Consume stream.
//
//   npm install
//   node consume.js ../../../proto unix:/run/offramp/offramp.sock orders
'use strict';

const grpc = require('@grpc/grpc-js');
const { loadSync } = require('@grpc/proto-loader');

const [proto, address, subscription] = process.argv.slice(2);
const options = { includeDirs: [proto], keepCase: true, longs: String, enums: String, arrays: true };
const { ConsumerService } = grpc.loadPackageDefinition(loadSync('offramp/v1/consumer.proto', options)).offramp.v1;
const stub = new ConsumerService(address, grpc.credentials.createInsecure());

async function handle(record) {
  console.log(record.value.toString());
}

function consume() {
  const stream = stub.Consume();
  let inHand = 0;
  let leaving = false;

  async function work(batch) {
    const settlement = { lease: batch.lease, outcome: 'OUTCOME_ACK' };
    try {
      for (const record of batch.records) await handle(record);
    } catch (error) {
      Object.assign(settlement, { outcome: 'OUTCOME_NACK', reason: String(error) });
    }
    // Settling frees the credit for the next batch.
    stream.write({ settlements: [settlement] });
    if (--inHand === 0 && leaving) stream.end();
  }

  // At most four batches are unsettled at a time; they are worked on at the same time.
  stream.write({ hello: { subscription, client: { language: 'node', library: 'generated' }, credit: { batches: 4 } } });
  stream.on('data', ({ batches }) => {
    inHand += batches.length;
    batches.forEach(work);
  });
  // When a stream breaks, its leases end with it: their records are delivered again.
  stream.on('error', (error) => {
    if (error.code !== grpc.status.UNAVAILABLE) throw error;
    setTimeout(consume, 1000);
  });
  // To leave in order: ask for no more, settle what is in hand, and only then end the stream.
  process.on('SIGTERM', () => {
    leaving = true;
    stream.write({ draining: true });
    if (inHand === 0) stream.end();
  });
}

consume();
