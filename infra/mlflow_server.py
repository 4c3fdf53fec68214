"""Start MLflow's server with login, and with its runs and users in Postgres.

The compose file and the manifests run this program. It reads POSTGRES_ADDRESS (host:port), POSTGRES_PASSWORD,
and the settings of `mlflow server`. MLflow takes the database of users only from a file, and the URI in it
contains the password. So the file is only in memory and ends with the server. This works on Linux; only
processes of the same user can open the file.
"""

import os
import sys
from urllib.parse import quote

address = os.environ["POSTGRES_ADDRESS"]
password = quote(os.environ["POSTGRES_PASSWORD"], safe="")
database = f"postgresql+psycopg2://dreamgym:{password}@{address}"
lines = [
    "[mlflow]",
    "default_permission = READ",
    f"database_uri = {database}/mlflow_users".replace("%", "%%"),
    "authorization_function = mlflow.server.auth:authenticate_request_basic_auth",
    "",
]
# Without MFD_CLOEXEC the file stays open in the server after execv.
login = os.memfd_create("login.ini", flags=0)
os.write(login, "\n".join(lines).encode())
os.environ["MLFLOW_AUTH_CONFIG_PATH"] = f"/proc/{os.getpid()}/fd/{login}"
os.environ["MLFLOW_BACKEND_STORE_URI"] = f"{database}/mlflow"
os.execv(
    sys.executable, [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", *sys.argv[1:]]
)
