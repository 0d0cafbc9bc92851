import agent_reach

with agent_reach.connect("caller") as agent:
    print(agent.call("text.upper", "hello"))
