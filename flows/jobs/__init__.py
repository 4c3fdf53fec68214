"""Flows and commands beside the main job: collect, pretrain, fidelity, ablation, study, transfer,
reproduce.
"""
