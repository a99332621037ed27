"""Kubernetes as a source of endpoints: lists and watches that are kept up whatever happens.

`config` finds out how to reach the API server, `client` lists and watches, `reflector` keeps a
set of objects equal to the server's, `kinds` says what the objects look like, and `discovery`
turns them into messages for the datastore.
"""
