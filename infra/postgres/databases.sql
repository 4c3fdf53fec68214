-- MLflow's databases beside Prefect's, which the image makes; read once, when the volume is new.
CREATE DATABASE mlflow_users;
CREATE DATABASE mlflow;
