"""What must hold before a flow starts, checked by every command and by `dreamgym doctor`."""
