"""Play one held-out ALFWorld game with an exported chat policy, behind any OpenAI-compatible server.

vllm serve runs/latest/policy --port 8000        # or: transformers serve runs/latest/policy --port 8000
python examples/act.py runs/latest/policy http://127.0.0.1:8000/v1
"""

import json
import sys
from pathlib import Path

import httpx

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter


def main(policy: str, url: str) -> None:
    adapter = make_adapter(EnvironmentConfig(workers=1))
    (task,) = adapter.tasks("test", 1, 0)
    world = adapter.open()
    first = f"Task: {task.instruction}\nObservation: {world.reset([task])[0]}"
    system = json.loads(Path(policy, "dreamgym.json").read_text())["system"]
    messages = [{"role": "system", "content": system}, {"role": "user", "content": first}]
    print(first)
    for _ in range(20):
        request = {"model": policy, "messages": messages, "temperature": 1.0, "max_tokens": 96}
        answer = httpx.post(f"{url}/chat/completions", json=request, timeout=120).raise_for_status()
        reply = answer.json()["choices"][0]["message"]["content"]
        step = world.step([reply.rpartition("Action: ")[2].strip() or "?"])[0]
        print(f"{reply}\nObservation: {step.state}")
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": f"Observation: {step.state}"})
        if step.done:
            break
    print("success" if step.reward > 0.5 else "no success")
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
