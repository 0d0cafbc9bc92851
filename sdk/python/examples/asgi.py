"""A FastAPI service that is an agent too: its functions are called over HTTP and over the hub.

uvicorn asgi:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

import agent_reach

agent = agent_reach.Agent("orders")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The agent lives as long as the service; leaving drains it."""
    async with agent:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/price")
async def price(item: str, amount: int = 1) -> dict[str, float]:
    """What so many of an item cost."""
    return {"price": len(item) * amount / 4}


# The same function, with the keys of the body as its parameters: no line of it knows that it is an agent's.
agent.provide_function(price, "order.price", idempotent=True)


@app.get("/shout/{text}")
async def shout(text: str) -> str:
    """Asks another agent."""
    try:
        return await agent.call("text.upper", text, timeout=5, result=str)
    except agent_reach.CallError as error:
        raise HTTPException(503 if error.retryable else 502, str(error)) from error
