"""fedplug in a Flower federation: Flower carries the messages, and each party is a separate program at its site.

At the server, `server` is the ServerApp, and `engine` and `transport` send through Flower's grid. At a site, `relaying`
passes messages to the party, either in Flower's ClientApp or in `worker`, a program that loads no code of the server.
`app_folder` writes the app folder for `flwr run`. `trial` and its modules run a federation on one machine.
"""
