"""fedplug in a Flower federation: Flower carries the messages, parties are programs of their own at their sites.

At the server: `server` is the ServerApp, `engine` and `transport` send through Flower's grid. At a site: `relaying`
hands messages to the party, either in Flower's ClientApp or in `worker`, a program that loads no code of the server.
`app_folder` writes what `flwr run` wants; `trial` and its modules run a federation on one machine.
"""
