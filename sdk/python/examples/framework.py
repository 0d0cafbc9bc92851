"""An agent of Pydantic AI on the hub: others ask it, and it asks others as its tools.

The model is the framework's own test model, so this runs offline; put a real one in its place.
"""

from pydantic import BaseModel
from pydantic_ai import Agent as Assistant
from pydantic_ai import RunContext
from pydantic_ai.models.test import TestModel

import agent_reach


class Answer(BaseModel):
    """What the assistant says."""

    text: str
    sources: list[str]


agent = agent_reach.Agent("assistant")
assistant = Assistant(TestModel(), deps_type=agent_reach.Context, output_type=Answer)


@assistant.tool
async def shout(run: RunContext[agent_reach.Context], text: str) -> str:
    """Says it louder, by another agent; the caller's deadline goes on to it."""
    return await run.deps.agent.call("text.upper", text, budget=run.deps.remaining, result=str)


@agent.capability("assistant.ask", timeout=120)
async def ask(ctx: agent_reach.Context, question: str) -> Answer:
    """Answers a question"""
    return (await assistant.run(question, deps=ctx)).output


if __name__ == "__main__":
    print(agent.run())
