-- MLflow's database beside Prefect's, which the image makes; read once, when the volume is new.
CREATE DATABASE mlflow;
