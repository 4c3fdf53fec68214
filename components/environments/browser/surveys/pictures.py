"""Screenshots for docs/reference/browser.md: each page beside the state that the agent sees.

    python -m components.environments.browser.surveys.pictures docs/images login-user:2 choose-list:0

Each argument is a task type, and after how many of the expert's steps its picture is taken.
"""

from __future__ import annotations

import base64
import html
import io
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from PIL import Image

from components.config import load_config
from components.environments.browser.adapter import BrowserAdapter
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.task_lists import miniwob_page
from components.records import TEST, Trajectory, Transition

SEED = 10_000_003
_PAGE = """<!doctype html><meta charset=utf-8>
<body style="margin:12px;display:flex;gap:16px;width:760px;font:14px monospace;background:#fff">
<img src="data:image/png;base64,{picture}" style="width:160px;height:210px;
object-fit:none;object-position:left top;border:1px solid #999">
<div><b>{goal}</b><pre style="white-space:pre-wrap">{state}</pre>
<div style="color:#06c">{action}</div></div>"""


def take_picture(world: BrowserEnvironment, adapter: BrowserAdapter, family: str, steps: int) -> bytes:
    """Return the PNG of a page after `steps` of the expert, with goal, state and the next action."""
    (task,) = adapter.open_tasks(world.browsers, [miniwob_page(family, SEED)], TEST)
    world.reset([task])
    expert = adapter.behaviour("expert", task, 0)
    episode = Trajectory(task)
    for number in range(steps):
        action = expert(episode, world.admissible[0])[1]
        answer = world.step([action])[0]
        assert answer is not None
        step = Transition(
            task.id, "", number, episode.states[-1], action, answer.state, answer.reward, answer.done
        )
        episode = episode.with_step(step)
    thought, action = expert(episode, world.admissible[0])
    parts = {"goal": task.instruction, "state": episode.states[-1], "action": f"{thought} → {action}"}
    picture = base64.b64encode(world.browsers.picture(0)).decode()
    return _draw_page(
        world, _PAGE.format(picture=picture, **{name: html.escape(text) for name, text in parts.items()})
    )


def _draw_page(world: BrowserEnvironment, page: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        page_file = Path(folder) / "page.html"
        page_file.write_text(page, encoding="utf-8")
        world.browsers.load({0: {"task": "openended", "url": page_file.as_uri(), "goal": ""}})
        with Image.open(io.BytesIO(world.browsers.picture(0))) as image, io.BytesIO() as file:
            image.crop((0, 0, 790, 240)).save(file, format="PNG", optimize=True)
            return file.getvalue()


def main() -> None:
    """Run the command line: a folder, then types with steps."""
    folder, *arguments = sys.argv[1:]
    adapter = BrowserAdapter(
        load_config(None, ["environment.name=browser", "environment.workers=1"]).environment
    )
    with closing(adapter.open()) as world:
        for argument in arguments:
            family, _, steps = argument.partition(":")
            (Path(folder) / f"browser-{family}.png").write_bytes(
                take_picture(world, adapter, family, int(steps or 0))
            )


if __name__ == "__main__":
    main()
