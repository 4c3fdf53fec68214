"""Make a worker's workspace on its volume, or update it to the image's commit, and run a command there.

    python infra/workspace.py /workspace/dreamgym prefect worker start --pool dreamgym

The files of runs (data.dvc, data/, the experiment commits in .git, .dreamgym/, runs/) remain on the volume
when the container ends. The code comes with the image. If the volume has changes of its own in a file that
the new commit changes too, nothing is overwritten: git names the file, and the command does not start.
"""

import os
import subprocess
import sys
from pathlib import Path

image = Path(__file__).resolve().parents[1]
workspace = Path(sys.argv[1]).absolute()
command = sys.argv[2:]
if (workspace / ".git").is_dir():
    subprocess.run(["git", "-C", workspace, "fetch", "--quiet", image, "HEAD"], check=True)
    if subprocess.run(["git", "-C", workspace, "merge", "--quiet", "--ff-only", "FETCH_HEAD"]).returncode:
        sys.exit(
            f"{workspace} cannot be updated to the image's commit (see git's reason above). Expected a "
            "workspace without changes of its own to those files. Commit or undo its changes "
            f"(git -C {workspace} status), or name another directory."
        )
else:
    subprocess.run(["git", "clone", "--quiet", image, workspace], check=True)
os.chdir(workspace)
os.environ["PYTHONPATH"] = str(workspace)
os.execvp(command[0], command)
