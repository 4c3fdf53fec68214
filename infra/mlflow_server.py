"""Start MLflow's server with login, its runs and its users in Postgres: what the compose file and the manifests run.

Reads POSTGRES_ADDRESS (host:port) and POSTGRES_PASSWORD, and what `mlflow server` reads itself. The users' database can be named
in a file alone, and its URI holds the password: the file is written at each start, for this user's eyes alone, and never kept.
"""

import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

address, password = os.environ["POSTGRES_ADDRESS"], quote(os.environ["POSTGRES_PASSWORD"], safe="")
database = f"postgresql+psycopg2://dreamgym:{password}@{address}"
login = Path(tempfile.mkdtemp()) / "login.ini"
login.touch(mode=0o600)
lines = ["[mlflow]", "default_permission = READ", f"database_uri = {database}/mlflow_users".replace("%", "%%")]
login.write_text("\n".join([*lines, "authorization_function = mlflow.server.auth:authenticate_request_basic_auth", ""]))
os.environ["MLFLOW_AUTH_CONFIG_PATH"] = str(login)
os.environ["MLFLOW_BACKEND_STORE_URI"] = f"{database}/mlflow"
os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", *sys.argv[1:]])
