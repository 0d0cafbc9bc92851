import agent_reach

agent = agent_reach.Agent("shouter")


@agent.capability("text.upper", idempotent=True)
def upper(text: str) -> str:
    """Says it louder"""
    return text.upper()


print(agent.run())
