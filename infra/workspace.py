"""Make a worker's workspace on its volume, or bring it up to the image's commit, and run a command there.

    python infra/workspace.py /workspace/dreamgym prefect worker start --pool dreamgym

What a run leaves (data.dvc, data/, the experiment commits in .git, .dreamgym/, runs/) outlives the container
there; the code comes with the image. A change of the volume's own files that the new commit changes too is
not written over: git says which, and nothing starts.
"""

import os
import subprocess
import sys
from pathlib import Path

image = Path(__file__).resolve().parents[1]
place, command = Path(sys.argv[1]).absolute(), sys.argv[2:]
if (place / ".git").is_dir():
    subprocess.run(["git", "-C", place, "fetch", "--quiet", image, "HEAD"], check=True)
    if subprocess.run(["git", "-C", place, "merge", "--quiet", "--ff-only", "FETCH_HEAD"]).returncode:
        sys.exit(
            f"{place} cannot be brought to the image's commit (git says why above). Expected a workspace "
            "without changes of its own "
            f"to those files. Commit or put back what it has (git -C {place} status), or name another "
            "directory."
        )
else:
    subprocess.run(["git", "clone", "--quiet", image, place], check=True)
os.chdir(place)
os.environ["PYTHONPATH"] = str(place)
os.execvp(command[0], command)
