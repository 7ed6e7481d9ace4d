"""Nothing of what is tried here gets through the server."""
