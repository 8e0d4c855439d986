"""What `deepinfer new-backend` and `deepinfer new-plugin` write: templates, and the code that fills them in."""
