/* Browsers give pages that are opened as files no workers. The site searches in a worker; here it is a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = []; // messages from before the script is there
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => setTimeout(() => this.onmessage && this.onmessage({ data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href);
      script.onerror = event => this.onerror && this.onerror(event);
      script.onload = () => {
        const messages = this.waiting;
        this.waiting = null;
        messages.forEach(data => this.postMessage(data));
      };
      inside.document.body.append(script);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.frame.isConnected && this.frame.contentWindow.onmessage({ data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
