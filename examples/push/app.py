"""An API as any other; one of its routes gets batches from Offramp.

pip install fastapi uvicorn
uvicorn --app-dir examples/push app:app --port 8080
"""

import json
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Record(BaseModel):
    id: str
    value: str | None = None
    attempt: int
    possibly_processed: bool


class Batch(BaseModel):
    records: list[Record]


@app.post("/orders")
def orders(batch: Batch) -> dict[str, Any]:
    failures = []
    for index, record in enumerate(batch.records):
        try:
            order = json.loads(record.value or "")
            print(f"order {order['id']} of {order['amount']}", flush=True)
        except (ValueError, KeyError, TypeError) as error:
            # No retry will make an order of it. All others of the batch are done.
            failures.append({"index": index, "outcome": "reject", "reason": f"not an order: {error!r}"})
    return {"failures": failures}
