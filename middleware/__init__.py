"""Pure ASGI layers around the application: headers, bytes and clocks only.

Knows nothing of chat bodies, of tenants, of policies or of any other package of this project.
"""
