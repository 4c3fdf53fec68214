"""Start MLflow's server with login, its runs and its users in Postgres: what the compose file and the
manifests run.

Reads POSTGRES_ADDRESS (host:port) and POSTGRES_PASSWORD, and what `mlflow server` reads itself. The users'
database can be named in a file alone, and its URI holds the password: the file has no name on any disk, lies
in memory alone, and ends with the server (Linux; only the same user's processes may open it).
"""

import os
import sys
from urllib.parse import quote

address, password = os.environ["POSTGRES_ADDRESS"], quote(os.environ["POSTGRES_PASSWORD"], safe="")
database = f"postgresql+psycopg2://dreamgym:{password}@{address}"
lines = [
    "[mlflow]",
    "default_permission = READ",
    f"database_uri = {database}/mlflow_users".replace("%", "%%"),
]
login = os.memfd_create(
    "login.ini", flags=0
)  # open in the server, too: without MFD_CLOEXEC it outlives the execv
os.write(
    login,
    "\n".join(
        [*lines, "authorization_function = mlflow.server.auth:authenticate_request_basic_auth", ""]
    ).encode(),
)
os.environ["MLFLOW_AUTH_CONFIG_PATH"] = f"/proc/{os.getpid()}/fd/{login}"
os.environ["MLFLOW_BACKEND_STORE_URI"] = f"{database}/mlflow"
os.execv(
    sys.executable, [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", *sys.argv[1:]]
)
