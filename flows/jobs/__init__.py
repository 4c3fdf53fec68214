"""Jobs other than the main one: collect, pretrain, fidelity, ablation, study, transfer, reproduce."""
