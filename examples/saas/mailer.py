"""Receives the notices of ratelimitd, and sends one mail for each. Needs no packages.

    python3 mailer.py --port 9001 --secret-file notify.secret --mails mails
    python3 mailer.py --port 9001 --secret-file notify.secret --smtp localhost:25 --from billing@example.com

Without --smtp, a mail is a file in the folder --mails, named after its webhook-id. A message that arrives twice is one
mail, also after a restart.
"""

import argparse
import base64
import hashlib
import hmac
import json
import pathlib
import smtplib
import time
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 65_536
# Older messages may be copies that somebody recorded.
MAX_AGE_S = 300


def is_signed(secret_file, headers, body):
    """Checks the signature and the time, as https://www.standardwebhooks.com describes."""
    message_id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent_at.isascii() or not sent_at.isdigit() or abs(time.time() - int(sent_at)) > MAX_AGE_S:
        return False
    # Read for each message: the secret can be replaced at any time.
    line = pathlib.Path(secret_file).read_text().splitlines()[0]
    key = base64.b64decode(line.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message_id}.{sent_at}.".encode() + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    return any(hmac.compare_digest(one.encode(), expected.encode()) for one in headers.get("webhook-signature", "").split())


def mail_of(notice, sender, domain):
    """A real service looks up the customer's address."""
    data = notice["data"]
    customer = next(entry.partition("=")[2] for entry in data["entries"] if entry.startswith("customer="))
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = f"{customer}@{domain}"
    percent = f"{data['share']:.0%}"
    mail["Subject"] = f"{percent} of your {data['rule']} limit is used"
    ends = f" The next period begins at {data['period_ends']}." if "period_ends" in data else ""
    mail.set_content(f"{data['used']:,} of {data['limit']:,} {data['unit_name']} are used.{ends}\n")
    return mail


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(self.receive())
        self.send_header("Content-Length", "0")
        self.end_headers()

    def receive(self):
        """The status. After 204 the message does not arrive again; after 5xx it does."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return 413
        body = self.rfile.read(int(length))
        options = self.server.options
        if not is_signed(options.secret_file, self.headers, body):
            return 401
        notice = json.loads(body)
        # ratelimitd's ids are 32 hexadecimal digits, and the signature covers them.
        done = options.mails / f"{self.headers['webhook-id']}.eml"
        if notice["type"] != "limit.reached" or done.exists():
            return 204
        mail = mail_of(notice, options.sender, options.domain)
        try:
            if options.smtp:
                host, _, port = options.smtp.partition(":")
                with smtplib.SMTP(host, int(port or 25), timeout=3) as server:
                    server.send_message(mail)
        except OSError as error:
            self.log_error("no mail: %s", error)
            return 503
        # Written beside and renamed, so that it is whole or absent.
        part = done.with_suffix(".part")
        part.write_bytes(bytes(mail))
        part.rename(done)
        return 204


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=9001)
    parser.add_argument("--secret-file", required=True)
    parser.add_argument("--mails", type=pathlib.Path, default="mails", help="folder of the mails that were sent")
    parser.add_argument("--smtp", help="host:port of a mail server")
    parser.add_argument("--from", dest="sender", default="billing@example.com")
    parser.add_argument("--domain", default="example.com", help="of the customers' addresses in this example")
    options = parser.parse_args()
    options.mails.mkdir(exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Receiver)
    server.options = options
    server.serve_forever()


main()
